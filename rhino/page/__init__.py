"""`rhino ui`: the cluster as a page in a browser. A process beside the manager asks it as the commands do."""
