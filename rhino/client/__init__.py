"""Clients of Rhino's services, for programs and the command line, with plain dataclasses and Rhino's exceptions."""
