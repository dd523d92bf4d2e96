"""Files as other frameworks write them: `python -m testkit.formats.generate FOLDER` where these are
installed.
"""
