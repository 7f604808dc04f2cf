"""Doubles for tests of programs that use Cabochon: tiny random models and files of them."""
