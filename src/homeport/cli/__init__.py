"""The command line: one file per noun, loaded only when it is called, so that `homeport version` answers at once."""
