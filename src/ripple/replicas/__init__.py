"""Many replicas of the server on Ray Serve: the same application, one engine each."""

NAME, REPLICA = "ripple", "Replica"  # of the application and its deployment
