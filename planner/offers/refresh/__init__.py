"""Price refresh from providers: one module per source behind one protocol, sanity checks, an atomic store."""
