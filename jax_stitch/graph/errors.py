"""What building a graph can complain about."""


class GraphError(ValueError):
    """An HLO module that cannot become a graph, or a graph that breaks its own rules. The message names the
    instruction."""
