"""What is best: each objective finds the layouts of a plan and says what is proven of it.

Time, memory near the fastest, money, energy and fewest GPUs, and the Pareto front of two. Made of
searches under changing limits (`context`), with uneven stages and node groups where they may win.
"""
