"""Wire 2: weights travel from trainer rank 0 to every generator worker while both go on working.

    learner --stage/publish--> Publisher ==gRPC WeightSync== WeightMember --WeightEngine--> Receiver (in each worker)
                                   |                                                            ^
                                   +------------- packed buckets, gloo or NCCL -----------------+

Control (publisher's server, member) and bytes (broadcast, receiver) run on different threads: a collective that hangs
never stops a heartbeat.
"""
