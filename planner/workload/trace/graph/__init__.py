"""The traced step as a graph: fusion, launches and peak memory."""
