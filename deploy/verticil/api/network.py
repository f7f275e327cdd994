"""A release's network by names, and as the values of other packages."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verticil.api.arguments import check_arguments
from verticil.api.optional import import_optional
from verticil.api.plot import draw_network
from verticil.shared.release.plot import Plot

if TYPE_CHECKING:
    import pandas as pd

    from verticil.shared.numerics.model.network import Network
    from verticil.shared.numerics.model.schema import Variable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NamedNetwork:
    """A Bayesian network whose variables and categories have names.

    Attributes:
        model: the network as a value, by positions.
        strength: of edges (parent, child): the share of resamples in which chance and noise do not explain them.
        information: of edges: what they tell, in nats.
    """

    model: Network = field(repr=False)
    strength: Mapping[tuple[str, str], float]
    information: Mapping[tuple[str, str], float]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The variables, in the order of the release's columns."""
        return self.model.schema.names

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """(parent, child) of each edge."""
        names = self.nodes
        return tuple((names[parent], names[child]) for parent, child in self.model.dag.edges())

    @check_arguments()
    def variable(self, name: str) -> Variable:
        """Return a variable: its categories (`labels`), bins and party (`owner`).

        Raises:
            Misuse: USAGE, there is none; the nearest one is named.
        """
        from verticil.shared.release.drawing import variable_of

        return variable_of(self.model.schema, name, where="variable")

    @check_arguments()
    def parents(self, name: str) -> tuple[str, ...]:
        """Return the parents of a variable; errors as of `variable`."""
        self.variable(name)
        return tuple(self.nodes[parent] for parent in self.model.dag.parents[self.model.schema.index(name)])

    def edge_table(self) -> pd.DataFrame:
        """Return a row for each edge: ``parent``, ``child``, ``strength``, ``information`` (nats); NaN where not told."""
        import pandas as pd

        return pd.DataFrame(
            [
                (*edge, self.strength.get(edge, float("nan")), self.information.get(edge, float("nan")))
                for edge in self.edges
            ],
            columns=pd.Index(["parent", "child", "strength", "information"]),
        )

    @check_arguments()
    def table(self, name: str) -> pd.DataFrame:
        """Return the conditional probabilities of a variable, a row for each configuration of its parents and category.

        Columns: ``probability`` (what is sampled from), ``estimate``, ``standard_error``, ``low``, ``high``, ``unstable``, as in
        model.json; errors as of `variable`.
        """
        import pandas as pd

        variable, above = self.variable(name), self.parents(name)
        family = self.model.families[self.model.schema.index(name)]
        labels = [*(self.variable(parent).labels for parent in above), variable.labels]
        return pd.DataFrame(
            {
                "probability": family.probability.ravel(),
                "estimate": family.estimate.ravel(),
                "standard_error": family.standard_error.ravel(),
                "low": family.interval_low.ravel(),
                "high": family.interval_high.ravel(),
                "unstable": family.unstable.ravel(),
            },
            index=pd.MultiIndex.from_tuples(list(itertools.product(*labels)), names=[*above, name])
            if above
            else pd.Index(variable.labels, name=name),
        )

    def plot(self) -> Plot:
        """Return a drawing: arrows down, parties by colour and pattern, edges as thick as they are sure."""
        return draw_network(self.model, self.strength)

    def to_networkx(self) -> Any:
        """Return a ``networkx.DiGraph``: nodes with ``party`` and ``categories``, edges with ``strength`` and ``information``.

        Raises:
            Misuse: USAGE, networkx is not installed.
        """
        graph = import_optional("networkx").DiGraph()
        for variable in self.model.schema.variables:
            graph.add_node(variable.name, party=variable.owner, categories=variable.labels)
        for edge in self.edges:
            attributes = {"strength": self.strength.get(edge), "information": self.information.get(edge)}
            graph.add_edge(*edge, **{key: value for key, value in attributes.items() if value is not None})
        return graph

    def to_pgmpy(self) -> Any:
        """Return a ``pgmpy.models.DiscreteBayesianNetwork`` with the categories as state names.

        What a study states of all records (rules) is not in a network, and not in it.

        Raises:
            Misuse: USAGE, pgmpy is not installed.
        """
        network = import_optional("pgmpy.models").DiscreteBayesianNetwork(list(self.edges))
        network.add_nodes_from(self.nodes)
        table = import_optional("pgmpy.factors.discrete").TabularCPD
        for family, variable in zip(self.model.families, self.model.schema.variables, strict=True):
            above = [self.model.schema[parent] for parent in family.parents]
            states = {each.name: list(each.labels) for each in (variable, *above)}
            network.add_cpds(
                table(
                    variable.name,
                    variable.n_states,
                    family.probability.T,
                    evidence=[each.name for each in above] or None,
                    evidence_card=[each.n_states for each in above] or None,
                    state_names=states,
                )
            )
        return network

    def to_pyagrum(self) -> Any:
        """Return a ``pyagrum.BayesNet`` with the categories as labels; rules as in `to_pgmpy`.

        Raises:
            Misuse: USAGE, pyagrum is not installed.
        """
        pyagrum = import_optional("pyagrum")
        network = pyagrum.BayesNet("verticil")
        for variable in self.model.schema.variables:
            network.add(pyagrum.LabelizedVariable(variable.name, variable.name, list(variable.labels)))
        for edge in self.edges:
            network.addArc(*edge)
        sizes = self.model.schema.n_states
        for family, name in zip(self.model.families, self.nodes, strict=True):
            table = family.probability.reshape([sizes[v] for v in (*family.parents, family.child)])
            own = network.cpt(name)
            order = [(*family.parents, family.child).index(self.nodes.index(each)) for each in reversed(own.names)]
            own[:] = table.transpose(order)
        return network

    def __repr__(self) -> str:
        edge_list = ", ".join(f"{parent} → {child}" for parent, child in self.edges[:6])
        more = len(self.edges) - 6
        return (
            f"NamedNetwork of {len(self.nodes)} variables and {len(self.edges)} edges\n"
            f"variables: {_few(self.nodes)}\n"
            f"edges: {edge_list or 'none'}" + (f", and {more} more" if more > 0 else "")
        )

    def _repr_html_(self) -> str:
        return self.plot().svg


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f", and {len(names) - 8} more" if len(names) > 8 else "")
