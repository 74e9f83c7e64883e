"""Attacks on sigmacube: damaged files, odd cubes, bad commands, kills, full disks, rude browsers.

``make attack`` runs them all, ``python -m attacks NAME --count N`` one of them. Each tries many
cases, every one made from its number alone, and counts those that end as promised. A case that
does not is written to ``attacks/found`` and makes the exit code 1. Nothing but this machine is
ever addressed.
"""
