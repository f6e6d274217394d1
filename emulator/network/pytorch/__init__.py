"""Networks and PyTorch: trained ones as its modules and by its names, and models of users' own
code.
"""
