"""`python -m homeport.cli` is `homeport`."""

from homeport.cli.main import main

main()
