"""`rollcast plan`: one file for each question, and what two of them share."""
