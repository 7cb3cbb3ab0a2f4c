"""Power cuts: programs run under strace, and run again on each state that a power cut could leave of their files."""
