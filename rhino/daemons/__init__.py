"""The daemon processes of Rhino: their composition and their main loops."""
