"""What adapters share about sockets: clients and servers of HTTP and TLS, and whom a connection may reach."""
