"""The protocol on one machine: in one process (`simulate`), and as real processes (the demonstration).

>>> from verticil.simulation import simulate
>>> simulate.__module__
'verticil.simulation.in_process'
"""

from verticil.simulation.in_process import Simulated as Simulated
from verticil.simulation.in_process import simulate as simulate
