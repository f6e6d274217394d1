"""Timelines: what each lane of a run did when, as spans, and what shows them.

    samples  the window of a run's samples that is shown, and what an observer keeps of them
    rows     \
    actions   > three adapters -> spans, and their chart as text or as a picture
    tasks    /                      -> trace, for Perfetto

The adapters are for rows on engines, for whole actions, and for the tasks of a GPU with an FPGA.
The face is that of `view`.
"""
