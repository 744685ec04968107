"""What people see of a cluster: facts joined from Slurm and Kubernetes, as tables, trees and sentences.

It has no I/O and knows no terminal: cells are text with the name of a style. The CLI gathers the facts and prints the
result; a web dashboard can do the same with other means.
"""
