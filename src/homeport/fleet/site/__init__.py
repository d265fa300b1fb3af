"""Use-cases of a site: follow Git, plan, send orders to nodes, report."""
