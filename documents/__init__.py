"""Makes the parts of docs/ that are made from code, and builds the site: `python -m documents`,
`make docs`.
"""
