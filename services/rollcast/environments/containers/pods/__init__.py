"""Containers as pods of Kubernetes, by its official client.

manifest     the pod of an episode
api          the calls to the API server, each with a deadline
command      a command in a pod: the exec subresource
state        why a pod does not start, and whose doing its end is
pod          a Container
engine       starts pods, tries images before the start, removes pods of killed processes
served       commands in a pod for programs of the generator's machine, by enter_pod.py
"""
