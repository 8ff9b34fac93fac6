"""Adapters, one package a provider."""
