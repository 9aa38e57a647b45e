"""The live page: a run in progress, and an attack step by step, in a browser on this machine.

watch.py      what the page shows of the run, as plain data
stepwise.py   an attack on one picture, a query at a time
server.py     who may ask, and for what
"""
