"""A run on a terminal: what is said of it (`figures`), its curve (`curve`), and how both fill a screen (`panel`)."""
