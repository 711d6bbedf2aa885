# Installation and export arrive with the package test.
