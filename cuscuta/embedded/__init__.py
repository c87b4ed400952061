"""nats-server and PostgreSQL from their wheels, for one box, demos and tests; and a supervisor for Cuscuta's parts."""
