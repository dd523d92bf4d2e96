"""A run on a terminal: its figures in words (`figures`), its curve (`curve`), and how both fill a
screen (`panel`).
"""
