"""Names that the grammar knows: Greek letters, functions, signs over letters, joining words."""

_GREEK_LETTERS = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi chi psi omega
Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar partial nabla
"""
_FUNCTION_NAMES = """
sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch ln log lg exp gcd lcm
max min det sqrt arsinh arcosh artanh arcsinh arccosh arctanh asin acos atan sgn cis
"""
_DECORATION_NAMES = "overline vec hat bar tilde dot ddot widetilde underline angle triangle odot"

_POINT_NAMES = """
point points vertex center centre focus origin midpoint centroid orthocenter circumcenter incenter intersection pair
ordered coordinates minimum maximum vector solution at
"""

GREEK = frozenset(_GREEK_LETTERS.split())
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
DECORATIONS = frozenset(_DECORATION_NAMES.split())
DENIALS = frozenset(("not", "no", "never", "wrong", "incorrect", "false"))
POINTS = frozenset(_POINT_NAMES.split())
"""Words before a bracket that say what kind of point it is."""
JOINING = frozenset(("and", "or"))
AMBIGUOUS = frozenset(("min", "max", "sec", "lg", "det"))
"""Functions only before a bracket; elsewhere units or letters."""
