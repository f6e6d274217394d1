"""Baidu's DeepBench: measured LSTM and GRU layers on GPUs, a model of their steps, and guesses
without a model.

Two constants are fitted to rows of the P100; rows of other GPUs are predicted with these and with
data sheets.
"""
