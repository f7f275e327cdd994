"""``verticil reproduce``: the papers' experiments on the command line, theirs beside ours."""
