"""Grading in a pod of its own: the sandbox behind one gRPC call, for generators with
tasks.grading.sandbox = remote.

    generator: RemoteSandbox --Grade--> queue (bounded) -> turn -> Sandbox -> fork server
                                                                   -> judge, program

It knows no Redis, no trainer, no model: a program that breaks out of the sandbox finds only other
gradings here.
"""
