"""Task folders in Harbor's format, in containers.

    task      a folder, read and checked; fields that are not supported are refused by their names
    images    the image of a task: built from its Dockerfile, or pulled
    play      the program of an episode: container, agent, tests, reward
    grading   the task's tests, in the agent's container or in a fresh one
    agent     the shipped agent: a loop with one tool, `shell`
    __main__  writes the data set of a folder

https://www.harborframework.com/docs/tasks
"""
