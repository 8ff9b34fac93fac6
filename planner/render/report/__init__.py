"""A plan as one offline HTML file: template, style sheet, script and Observable Plot charts."""
