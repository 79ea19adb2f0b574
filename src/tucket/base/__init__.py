"""What every room needs: blocks and partitions, names of modes, boxes, checks, archives, threads."""
