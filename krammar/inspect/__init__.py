"""What ``krammar inspect`` prints: the bytes of messages, and the files of log folders."""
