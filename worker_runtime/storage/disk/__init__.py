"""Files and folders of a data folder."""
