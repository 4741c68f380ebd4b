"""Mutation testing: changes the product in small ways and shows which changes no test finds.

cosmic-ray supplies the operators and applies them. What is here chooses the mutants of a package, finds the tests that
execute each mutated function, and runs only those, in a fork of a process that has imported everything.
"""
