"""The live page: a run in progress, and an attack step by step, in a browser on this machine.

watch.py      the run, as plain data
stepwise.py   an attack on one picture, one query at a time
server.py     the requests: who may send them, and the replies
"""
