"""What a commit means for the tables: the folders of sites are read, then written in one transaction."""
