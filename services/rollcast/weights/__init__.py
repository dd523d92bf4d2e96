"""Wire 2: weights travel from every trainer rank to every generator while training and generation
go on.

    learner --stage--> StagingSlots (each rank)               Receiver (each worker, or one for all)
                             |                                                      ^
    rank 0: Publisher ==gRPC WeightSync== WeightMember --WeightEngine---------------+
                |            |                                                      |
                +--Lanes-->  +--- one lane for each rank, gloo or NCCL, in pieces --+

    plan         what a version consists of: manifest, the rows of each rank, its memory
    transport    how its bytes travel: process groups, lanes in turns, checksums
    sender       the trainer's end: staging, membership, epochs, publisher
    receiver     the generator's end: member, reception, receivers in the engine's workers

Control (publisher's server, member) and bytes (lanes, receiver) run on different threads: a
collective that hangs never stops a heartbeat.
"""
