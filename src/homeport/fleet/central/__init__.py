"""Use-cases of central: deploy, resolve, index a commit, process reports, send requests to sites."""
