"""The entry: the REST API and admission. The only package that knows Litestar. Any number of replicas."""
