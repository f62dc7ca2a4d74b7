"""English for MiniSQA: words to make values from, and the ways to state and ask for each relation.

Letters, apostrophes and spaces only: it is read aloud. What follows "a" never begins with a vowel, so no template needs
to choose between "a" and "an"; no template needs a pronoun.
"""

from speechssl.synth.minisqa import Language, Relation


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) for phrase in text.split(","))


FIRST_NAMES = _words("""
    aaron abigail adam adrian agnes alan albert alice amanda amber amy andrew angela anna anthony arthur audrey barbara
    beatrice benjamin bernard beth brian bridget caleb camilla carl carmen caroline catherine cecilia charles charlotte
    christine clara claire colin connor cynthia daisy daniel daphne david deborah dennis diana dominic donald dorothy
    douglas edith edward eleanor elizabeth ellen emily emma eric esther ethan eva felix fiona florence frances frank
    frederick gabriel george gerald gloria gordon grace graham gregory hannah harold harriet hazel heather helen henry
    howard hugo ingrid irene isaac isabel ivan jack jacob james janet jasmine jason jeremy jessica joanna jonathan
    joseph joyce judith julia justin karen katherine keith kenneth kevin laura lawrence leonard linda louise lucas lucy
    lydia malcolm margaret maria marion martha martin matthew megan melissa michael miriam molly monica nancy naomi
    nathan nicholas nigel nora norman oliver olivia oscar patricia patrick paula peter philip phoebe priscilla rachel
    ralph raymond rebecca richard robert robin roger rosemary rupert russell ruth samuel sandra sarah sebastian sharon
    simon sophie stella stephen susan sylvia teresa theodore thomas timothy ursula valerie vanessa veronica victor
    vincent virginia vivian walter wendy wesley william winifred zachary""")
LAST_NAMES = _words("""
    abbott adams aldridge allen anderson andrews armstrong atkinson bailey barker barlow barnes barrett bateman becker
    bennett benson blackwell bolton bowman bradley bradshaw briggs bristow brooks buckley burgess burton butterfield
    caldwell cameron campbell carlson carpenter carter chambers chandler chapman clayton clifford coleman collins cooper
    crawford crosby cunningham dalton davenport davies dawson dickson donovan drummond dudley duncan edwards
    elliott ellis emerson evans farrell ferguson fisher fitzgerald fletcher foster franklin fraser freeman gallagher
    gardner gibson gilbert goddard goodwin graves griffin hamilton hammond hancock hanson harding harper harrington
    harrison hartley hawkins henderson hopkins hudson hughes humphrey ingram jackson jefferson jenkins jennings johnson
    keller kendall kennedy kingsley lambert langley larson lawson lester lindsay livingston lockwood logan lombard
    maddox marshall matthews maxwell mcdonald mckenzie merrill middleton mitchell monroe montgomery morgan morrison
    murphy nelson newman nicholson norris norton osborne palmer parker patterson pearson pemberton perkins peterson
    phillips porter prescott preston quinn ramsey randall reynolds richardson roberts robinson rogers rowland russell
    sanders sawyer schofield sheldon sheridan simmons sinclair spencer stanton stevenson stewart stratton sullivan
    sutton talbot thatcher thompson thornton tucker turner underwood vaughan wagner wakefield walker wallace walters
    warren watkins watson webster wellington whitaker whitman wilkinson williams willoughby winslow winters woodward
    wright yates holloway""")
PLACE_FIRST = _words("""
    alder amber apple ash autumn beech birch black blue bramble bright cedar cherry clear clover copper coral crystal
    diamond eagle east elm falcon fern fox frost glen golden granite green hazel heather heron high hollow ivory juniper
    lark laurel lily lower maple marble meadow misty moss north oak old olive otter pearl pebble pine poplar raven red
    river robin rose royal rowan sand silver south spring star stone summer sunset swan thorn upper west white wild
    willow winter wolf""")
PLACE_SECOND = _words("""
    bay beach bridge brook castle cliff corner cove creek crossing dale falls ferry field ford forest gate glade grove
    harbour haven heath hill island junction lake landing meadow mill park pass point pond port ridge rock springs
    valley village water well wharf""")
TOWNS = _words("""
    aberdeen athens bangkok barcelona belfast berlin bordeaux boston bristol brighton brussels budapest cairo calgary
    cambridge cardiff carlisle chester chicago copenhagen cornwall dallas delhi denver detroit dover dresden dublin
    durham edinburgh exeter florence frankfurt geneva genoa glasgow hamburg hanover havana helsinki houston inverness
    istanbul jakarta kingston lancaster leeds leicester lisbon liverpool london madrid manchester manila marseille
    melbourne memphis mexico miami milan montreal moscow mumbai munich nairobi naples nashville norwich nottingham osaka
    oslo ottawa oxford paris perth philadelphia phoenix plymouth portland portsmouth prague quebec rome rotterdam
    salisbury salzburg seattle seville sheffield shanghai singapore southampton stockholm stuttgart swansea sydney tokyo
    toronto trieste turin valencia vancouver venice verona vienna warsaw winchester yorkshire zagreb zurich""")
PROFESSIONS = _phrases("""
    baker, banker, barber, beekeeper, blacksmith, bookbinder, bookseller, botanist, bricklayer, bus driver, butcher,
    butler, carpenter, cartographer, caterer, chemist, cheesemaker, cleaner, clerk, clockmaker, coach, cobbler, comedian,
    composer, cook, courier, dancer, decorator, dentist, detective, diplomat, diver, doctor, drummer, fashion designer,
    fire fighter, fisherman, florist, forester, geologist, glazier, goldsmith, guide, gymnast, hairdresser, historian,
    jeweller, journalist, judge, juggler, lawyer, librarian, lifeguard, lighthouse keeper, locksmith, magician, mechanic,
    meteorologist, midwife, miller, miner, musician, navigator, novelist, nurse, painter, pharmacist, photographer,
    pianist, piano tuner, pilot, plumber, poet, police officer, postman, potter, printer, puppeteer, roofer, sailor,
    sculptor, secretary, shepherd, shoemaker, singer, soldier, surgeon, surveyor, tailor, taxi driver, toymaker, train
    driver, translator, vet, waiter, watchmaker, weaver, welder, zoologist""")
RANKS = _words("chief freelance junior local military private senior trainee travelling")
FIELDS = _words("""
    bridge building chemical cultural desert forest garden hospital landscape marine medical mountain museum naval
    nuclear polar railway river rural school space theatre textile village volcano water wildlife""")
SPECIALISTS = _words("architect biologist consultant designer engineer historian inspector manager painter "
                     "photographer planner researcher scientist technician")  # fmt: skip
ADJECTIVES = _words("""
    battered beautiful bent big black blue brass broken bronze brown carved ceramic cheap copper cracked crystal dark
    dusty faded fancy flat foldable fragile french german glass golden green grey handmade heavy japanese large leather
    light little long marble metal narrow new painted patterned pink plain plastic polished porcelain purple rare red
    round rusty scarlet scratched shiny short silk silver small soft spanish square steel striped swiss thick thin tiny
    turkish velvet white wide wooden woollen yellow""")
OBJECTS = _words("""
    armchair backpack basket bell belt blanket bookcase bottle bowl box bracelet brooch bucket button camera candle
    carpet chair chest clock coat coin comb compass cup curtain cushion desk doll drum fan fork frame glove guitar
    hammer handbag hat helmet jacket jar jug kettle key kite knife ladder lamp lantern locket mask mattress mirror mug
    necklace notebook ornament pan parcel pen pencil pillow pipe plate purse radio ring rope ruler saddle saw scarf
    shawl shield shovel spoon statue stool suitcase sweater table teapot telescope tent thimble ticket torch towel toy
    tray trumpet typewriter umbrella vase violin wallet watch whistle""")
FOOD_FIRST = _words("""
    almond apple apricot banana barley bean beetroot blackberry butter cabbage carrot cauliflower celery cheese cherry
    chestnut chicken chocolate cinnamon coconut crab duck fennel fig garlic ginger ham hazelnut honey lamb leek lemon
    lentil lime lobster mango melon mushroom noodle oat olive onion orange parsley peach peanut pear pepper pineapple
    plum potato prawn pumpkin raspberry rhubarb rice salmon sausage spinach strawberry tomato trout tuna turkey turnip
    vanilla vegetable walnut""")
FOOD_SECOND = _words("bread broth cake casserole curry dumplings pancakes pastry pie pudding risotto salad sandwiches "
                     "sauce soup stew tart")  # fmt: skip
ANIMAL_FIRST = _words("baby black blind brown dwarf fat giant golden grey lame mountain noisy proud red shy "
                      "silver sleepy small spotted striped tame white wild young")  # fmt: skip
ANIMALS = _words("""
    beaver bear camel canary cat chicken cockatoo cow crab crow dog donkey duck eagle falcon ferret fox frog goat goose
    hamster hedgehog horse iguana kangaroo lizard llama monkey mouse otter owl parrot peacock pheasant pig pigeon pony
    rabbit raccoon rat raven sheep snail snake spider squirrel swan tortoise turkey turtle weasel""")
SHADES = _words("bright cool creamy dark deep dull faded light muddy pale rich shiny smoky soft vivid warm")
COLOURS = _words("""
    beige black blue bronze brown crimson gold green grey lavender lilac maroon olive orange peach pink purple red
    salmon scarlet silver turquoise violet yellow""")
INSTRUMENT_FIRST = _words("baroque bass classical folk german irish medieval modern scottish silver spanish tenor wooden")
INSTRUMENTS = _words("""
    accordion bagpipes banjo bassoon cello clarinet drums fiddle flute guitar harmonica harp harpsichord horn lute
    mandolin oboe organ piano recorder saxophone trombone trumpet tuba ukulele viola violin whistle xylophone""")
DIALECTS = _words("ancient classical coastal eastern literary medieval modern mountain northern old southern western")
TONGUES = _words("""
    arabic armenian bengali bulgarian cantonese catalan croatian czech danish dutch estonian finnish french georgian
    german greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian
    malay mandarin norwegian persian polish portuguese romanian russian serbian spanish swahili swedish tamil thai
    tibetan turkish ukrainian vietnamese welsh yiddish zulu""")
VEHICLES = _words("bicycle boat bus cab camper car cart coach ferry jeep minibus motorbike scooter skateboard "
                  "sledge tractor train tram tricycle truck van")  # fmt: skip
FIRMS = _words("""
    anchor bluebell candle castle cobra compass cottage cricket crown dolphin dragon falcon feather gazelle hammer
    harvest horizon jupiter kingfisher lantern lighthouse lion magnolia mercury meteor northern oyster panther paradise
    pelican pioneer planet queen rainbow rocket sapphire scorpion sparrow summit thunder tiger tulip unicorn victory
    violet windmill zebra""")
FIRM_KINDS = _words("bakery bank bookshop brewery cafe cinema clinic factory gallery garage hotel laboratory laundry "
                    "library museum pharmacy restaurant school studio theatre workshop")  # fmt: skip
PURSUITS = _words("carving collecting drawing filming painting photographing restoring sketching studying")
THINGS = _phrases("""
    antique clocks, bridges, butterflies, castles, comic books, dolls, fishing boats, flowers, fossils, gemstones, horses,
    insects, lighthouses, maps, masks, medals, model trains, mountain birds, mushrooms, musical boxes, old radios, owls,
    puppets, rock crystals, sailing ships, sea shells, steam engines, street signs, tea cups, tin soldiers, toy cars,
    wild orchids, windmills, wooden spoons""")
PRIZES = _words("prize award medal trophy cup")
SCHOOLS = _words("ancient asian british chinese comparative modern european french german greek indian industrial "
                 "international islamic medieval political roman russian scottish theoretical urban")  # fmt: skip
SUBJECTS = _words("archaeology architecture art astronomy chemistry cooking dance design drama economics geography "
                  "geometry history law literature mathematics medicine music philosophy physics poetry psychology "
                  "religion sculpture")  # fmt: skip
MONTHS = _words("january february march april may june july august september october november december")
_UNITS = _words("one two three four five six seven eight nine")
_TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
TWO_DIGITS = tuple(f"{ten}{unit}" for ten in _TENS for unit in ("", *(f" {unit}" for unit in _UNITS)))  # 20 to 99
DAYS = _words("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
              "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth") + _phrases(
              "twenty first, twenty second, twenty third, twenty fourth, twenty fifth, twenty sixth, twenty seventh, "
              "twenty eighth")  # fmt: skip
CURRENCIES = _words("dollars euros pounds")
SEASONS = _phrases("the spring of, the summer of, the autumn of, the winter of")
MINUTES = _phrases("five past, ten past, a quarter past, twenty past, twenty five past, half past, twenty five to, "
                   "twenty to, a quarter to, ten to, five to")  # fmt: skip
HOURS = (*_UNITS, "ten", "eleven", "twelve")

VALUES = {
    "person": ((FIRST_NAMES, LAST_NAMES),),
    "place": ((PLACE_FIRST, PLACE_SECOND), (PLACE_FIRST, PLACE_SECOND), (TOWNS,)),
    "profession": ((PROFESSIONS,), (RANKS, PROFESSIONS), (FIELDS, SPECIALISTS)),
    "object": ((ADJECTIVES, OBJECTS),),
    "food": ((FOOD_FIRST, FOOD_SECOND),),
    "animal": ((ANIMAL_FIRST, ANIMALS),),
    "colour": ((SHADES, COLOURS),),
    "instrument": ((INSTRUMENT_FIRST, INSTRUMENTS),),
    "tongue": ((TONGUES,), (DIALECTS, TONGUES)),
    "vehicle": ((ADJECTIVES, VEHICLES),),
    "firm": ((FIRMS, FIRM_KINDS),),
    "hobby": ((PURSUITS, THINGS),),
    "prize": ((ADJECTIVES, FIRMS, PRIZES),),
    "subject": ((SCHOOLS, SUBJECTS),),
    "date": ((("the",), DAYS, ("of",), MONTHS),),
    "year": ((("nineteen",), TWO_DIGITS), (SEASONS, ("nineteen",), TWO_DIGITS)),
    "money": (
        (TWO_DIGITS, ("thousand",), CURRENCIES),
        (_UNITS, ("thousand",), _UNITS, ("hundred",), CURRENCIES),
    ),
    "time": (
        (MINUTES, HOURS[4:11], ("in the morning",)),
        (MINUTES, HOURS[:5], ("in the afternoon",)),
        (MINUTES, HOURS[5:10], ("in the evening",)),
    ),
}

RELATIONS = (
    Relation("birthplace", "place", (
        "{name} was born in {value} on a cold night", "the place where {name} was born is {value}",
        "{value} is the town where {name} was born", "it was in {value} that {name} came into the world",
    ), ("where was {name} born", "in which place was {name} born", "what is the birthplace of {name}")),
    Relation("residence", "place", (
        "{name} now lives in {value} with two cousins", "these days the home of {name} is in {value}",
        "{value} is where {name} lives at the moment", "people who visit {value} can meet {name} at home there",
    ), ("where does {name} live now", "in which place does {name} live", "what is the current home of {name}")),
    Relation("holiday", "place", (
        "{name} goes to {value} for a holiday every year", "for every summer holiday {name} travels to {value}",
        "{value} is where {name} always spends the holidays", "a holiday in {value} is what {name} enjoys each year",
    ), ("where does {name} spend the holidays", "where does {name} go on holiday",
        "which place does {name} visit every holiday")),
    Relation("spouse", "person", (
        "{name} is happily married to {value}", "{value} and {name} have been married for years",
        "the wedding of {value} to {name} was a quiet one", "{name} got married to {value} in a small chapel",
    ), ("who is {name} married to", "who did {name} marry", "what is the name of the person {name} married")),
    Relation("teacher", "person", (
        "{name} learned to read and write from {value}", "the first teacher of {name} was {value}",
        "{value} was the teacher of {name} at school", "at school {value} taught {name} for many years",
    ), ("who taught {name} at school", "who was the teacher of {name}",
        "from whom did {name} learn to read and write")),
    Relation("neighbour", "person", (
        "{name} has a friendly neighbour called {value}", "the person living next door to {name} is {value}",
        "{value} lives right next door to {name}", "the house beside {value} belongs to {name}",
    ), ("who lives next door to {name}", "who is the neighbour of {name}",
        "what is the neighbour of {name} called")),
    Relation("profession", "profession", (
        "{name} works as a {value} these days", "by profession {name} is now a {value}",
        "a {value} is what {name} is by profession", "the job of {value} suits {name} very well today",
    ), ("what is the profession of {name}", "what does {name} do for a living", "what job does {name} have today")),
    Relation("first_job", "profession", (
        "the first job {name} ever had was that of {value}", "long ago {name} started out as a {value}",
        "working as a {value} was the first job of {name}", "{name} began as a {value} right after school",
    ), ("what was the first job of {name}", "which job did {name} start out in",
        "what did {name} work as right after school")),
    Relation("workplace", "firm", (
        "{name} goes to work at the {value} every day", "the employer of {name} is the {value}",
        "the {value} pays {name} for working there", "staff at the {value} include {name}",
    ), ("where does {name} work", "who is the employer of {name}", "at which place is {name} employed")),
    Relation("volunteering", "firm", (
        "{name} helps at the {value} without any pay", "on sundays {name} is a volunteer at the {value}",
        "the {value} is where {name} helps out for free", "volunteers at the {value} are led by {name}",
    ), ("where is {name} a volunteer", "where does {name} help without pay", "which place does {name} help for free")),
    Relation("birthday", "date", (
        "{name} has a birthday on {value}", "every year on {value} there is a birthday party for {name}",
        "{value} is the birthday of {name}", "friends bring birthday gifts to {name} on {value}",
    ), ("when is the birthday of {name}", "on which date does {name} have a birthday",
        "which day is the birthday of {name}")),
    Relation("wedding_day", "date", (
        "{name} had a wedding in church on {value}", "the wedding day of {name} was {value}",
        "on {value} guests came to the wedding of {name}", "{value} was the day of the wedding of {name}",
    ), ("when was the wedding of {name}", "which day was the wedding day of {name}",
        "on which date did {name} have a wedding")),
    Relation("graduation", "year", (
        "{name} left university with a degree in {value}", "the year {name} finished university was {value}",
        "in {value} the university gave a degree to {name}", "{value} was the time when {name} finished university",
    ), ("when did {name} finish university", "when did {name} leave university",
        "in which year did {name} get a degree")),
    Relation("moving", "year", (
        "{name} moved into a new house in {value}", "the last time {name} moved house was in {value}",
        "in {value} a van helped {name} move house", "{value} was the time when {name} last moved house",
    ), ("when did {name} move house", "in which year did {name} move", "when did {name} get a new house")),
    Relation("salary", "money", (
        "{name} earns {value} at work", "the salary of {name} is exactly {value}",
        "a salary of {value} is paid to {name}", "{value} is what {name} earns at work",
    ), ("how much does {name} earn", "what is the salary of {name}", "how much money is {name} paid")),
    Relation("debt", "money", (
        "{name} still owes the bank {value}", "the debt that {name} has to repay is {value}",
        "a debt of {value} still worries {name}", "the sum of {value} is still owed by {name}",
    ), ("how much does {name} owe", "how large is the debt of {name}", "how much must {name} repay")),
    Relation("favourite_food", "food", (
        "{name} likes {value} more than any other food", "the favourite food of {name} is {value}",
        "{value} is the favourite dish of {name}", "nothing tastes better than {value} according to {name}",
    ), ("what is the favourite food of {name}", "what does {name} like to eat most",
        "which dish does {name} love most")),
    Relation("hated_food", "food", (
        "{name} cannot stand the taste of {value}", "the dish that {name} hates most is {value}",
        "even the smell of {value} is too much for {name}", "{value} is the one dish {name} refuses to eat",
    ), ("which dish does {name} hate", "what does {name} refuse to eat", "which food can {name} not stand")),
    Relation("instrument", "instrument", (
        "{name} plays the {value} in a small band", "the instrument that {name} plays is the {value}",
        "the {value} is played very well by {name}", "neighbours hear the {value} whenever {name} makes music",
    ), ("which instrument does {name} play", "what does {name} play in the band",
        "on which instrument does {name} make music")),
    Relation("pet", "animal", (
        "{name} keeps a {value} as a pet", "the only pet of {name} is a {value}",
        "a {value} is the beloved pet of {name}", "there is a {value} in the home of {name} as a pet",
    ), ("what pet does {name} have", "which animal does {name} keep at home", "what kind of pet belongs to {name}")),
    Relation("rescued_animal", "animal", (
        "{name} once saved a {value} from drowning", "the animal that {name} saved from drowning was a {value}",
        "a {value} was saved from the water by {name}", "without the help of {name} a {value} would have drowned",
    ), ("which animal did {name} save", "what did {name} save from drowning",
        "what animal was rescued by {name}")),
    Relation("house_colour", "colour", (
        "{name} lives in a house painted {value}", "the walls of the house of {name} are {value}",
        "visitors see {value} walls at the house of {name}", "{value} is the colour of the house of {name}",
    ), ("what colour is the house of {name}", "what is the colour of the house of {name}",
        "in which colour is the house of {name} painted")),
    Relation("coat_colour", "colour", (
        "{name} always wears a coat of {value}", "the winter coat of {name} is {value}",
        "{value} is the colour of the coat {name} wears", "wearing a {value} coat {name} walks through town",
    ), ("what colour is the coat of {name}", "what is the colour of the coat {name} wears",
        "which colour of coat does {name} wear")),
    Relation("bought", "object", (
        "{name} bought a {value} at the market", "at the market a {value} was bought by {name}",
        "a {value} is what {name} bought last week", "last week the shop sold a {value} to {name}",
    ), ("what did {name} buy", "which thing did {name} buy last week", "what was bought by {name}")),
    Relation("lost", "object", (
        "{name} lost a {value} somewhere in the park", "somewhere on the train a {value} was lost by {name}",
        "a {value} is what {name} lost on the train", "for days {name} has been looking for a lost {value}",
    ), ("what did {name} lose", "which thing has {name} lost", "what is {name} looking for")),
    Relation("inherited", "object", (
        "{name} inherited a {value} from a rich uncle", "in the will a {value} was left to {name}",
        "a {value} is all that {name} inherited", "the dead uncle of {name} left behind a {value} as a gift",
    ), ("what did {name} inherit", "what was left to {name} in the will",
        "which thing did {name} get from a dead uncle")),
    Relation("language", "tongue", (
        "{name} speaks {value} at home", "the language {name} speaks at home is {value}",
        "{value} is spoken in the home of {name}", "family talks in {value} are normal for {name}",
    ), ("which language does {name} speak at home", "what is the home language of {name}",
        "in which language does the family of {name} talk")),
    Relation("learning", "tongue", (
        "{name} takes evening lessons in {value}", "the language that {name} is trying to learn is {value}",
        "{value} is the language {name} wants to learn", "a course in {value} keeps {name} busy in the evening",
    ), ("which language is {name} learning", "what language does {name} want to learn",
        "in which language does {name} take lessons")),
    Relation("transport", "vehicle", (
        "{name} travels to work in a {value}", "every morning {name} gets to town in a {value}",
        "a {value} takes {name} to work every morning", "a {value} is how {name} gets to town",
    ), ("how does {name} travel to work", "what does {name} take to work",
        "which vehicle takes {name} to work")),
    Relation("hobby", "hobby", (
        "{name} spends every free hour {value}", "the hobby of {name} is {value}",
        "{value} is what {name} does for fun", "on rainy days {value} keeps {name} happy",
    ), ("what is the hobby of {name}", "what does {name} do for fun", "how does {name} spend every free hour")),
    Relation("prize", "prize", (
        "{name} won the {value} last year", "last year the judges gave {name} the {value}",
        "the {value} was won by {name} last year", "winning the {value} made {name} very proud",
    ), ("which prize did {name} win", "what did {name} win last year", "what did the judges give {name}")),
    Relation("studies", "subject", (
        "{name} studied {value} for many years", "the subject that {name} studied was {value}",
        "{value} was the subject {name} chose to study", "many books about {value} were read by {name} as a student",
    ), ("what did {name} study", "which subject did {name} study", "what was {name} a student of")),
    Relation("waking", "time", (
        "{name} wakes up at {value} every day", "the alarm clock of {name} rings at {value}",
        "at {value} it is time for {name} to wake up", "{value} is when {name} wakes up",
    ), ("when does {name} wake up", "at what time does {name} wake up",
        "when does the alarm clock of {name} ring")),
    Relation("dinner", "time", (
        "{name} sits down to a warm meal at {value}", "the warm meal of {name} is ready at {value}",
        "at {value} a warm meal is served to {name}", "{value} is when {name} eats a warm meal",
    ), ("when does {name} eat a warm meal", "at what time is {name} served a meal",
        "when is the warm meal of {name} ready")),
)  # fmt: skip

FILLERS = _phrases("""
    the weather was mild for most of the week, it rained for three days without a break,
    a light wind blew over the fields in the evening, the church bells could be heard from far away,
    in autumn the leaves cover every path in the woods, nobody could remember such a warm spring,
    the market opens early and closes at noon, most shops were closed because of the storm,
    children were playing in front of the town hall, the old bridge was repaired at last,
    a long queue formed outside the post office, the newspaper arrived later than usual,
    there was a smell of fresh bread in the street, the river is low at this time of year,
    everybody was talking about the next election, the school reopened after a long break,
    a thick fog lay over the valley until midday, the train was late as it often is,
    the lights went out for almost an hour, farmers were hoping for a little more rain,
    the village has hardly changed in all these years, a small fair is held there in early summer,
    the town council met twice in one week, somebody had left the garden gate open,
    the road over the hills was blocked by snow, the last visitors left before it was dark,
    many people came to hear the concert in the square, the harvest was better than anyone had hoped,
    two fishing boats came back before sunrise, the roof of the station is being repaired,
    a new path now leads down to the beach, the night was clear and full of stars,
    the cinema shows the same film every week, the well in the square has been dry for months,
    traffic was slow on the road to the coast, the first snow fell earlier than expected,
    a stray cat sleeps on the steps of the library, the mill at the end of the lane is empty now,
    the choir meets on the first evening of each month, there are plans to build a new swimming pool,
    the ferry does not run when the sea is rough, people like to meet under the big tree,
    the windows of the old hotel are always shut, the postman comes by twice on busy days,
    there was nothing special on the radio, the summer was long and very dry,
    a rainbow stood over the hills after the rain, the apples ripened late that year,
    most of the guests stayed until the end, the ice on the pond was still too thin""")

LANGUAGE = Language(" ", VALUES, RELATIONS, FILLERS)
