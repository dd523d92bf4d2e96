"""Wire 2: weights travel from every trainer rank to every generator while both go on working.

    learner --stage--> StagingSlots (each rank)                              Receiver (each worker, or one for all)
                             |                                                            ^
    rank 0: Publisher ==gRPC WeightSync== WeightMember --WeightEngine---------------------+
                |            |                                                            |
                +--Lanes-->  +------ one lane for each rank, gloo or NCCL, in pieces -----+

Control (publisher's server, member) and bytes (lanes, receiver) run on different threads: a collective that hangs never
stops a heartbeat.
"""
