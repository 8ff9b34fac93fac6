"""Price refresh from providers: one module per source behind one protocol, sanity checks, and an atomic
store.
"""
