"""`python -m homeport.cli` is `homeport`."""

from homeport.cli.entry import main

main()
