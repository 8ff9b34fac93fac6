"""A plan as one HTML file that opens offline: a template, a style sheet, a script, Observable Plot's charts."""
