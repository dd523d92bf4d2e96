"""Verifiers that are services: a reward service of one's own, or a language model that judges.

grade -> [gather a batch] -> circuit closed? -> place free? -> POST -> answer read -> Grade
                             open: fails immediately        ^-- pause <-- may pass, tries left
deadline over, refused, answered with nonsense -> a grade without a verdict, counted:
                                                  never a 0 that is trained on
"""
