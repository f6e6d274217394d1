from .growing import exchange_table, history_table
from .recorder import Recorder
from .results import Results, resource_table, results_of, versions
from .results_file import read_results, write_results

__all__ = [
    "Recorder",
    "Results",
    "exchange_table",
    "history_table",
    "read_results",
    "resource_table",
    "results_of",
    "versions",
    "write_results",
]
