"""Do the tests notice a changed operator, constant or branch?"""
