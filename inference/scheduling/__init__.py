"""The scheduler's rules, pure: which request is next, on which replica, whether it is let in at all.

Nothing here does I/O, reads a clock or draws its own random numbers: time is a parameter (milliseconds where Redis
keeps it, seconds elsewhere), randomness an injected `random.Random`. The runner drives these rules over Redis and real
engines, the simulator over simulated ones.
"""
